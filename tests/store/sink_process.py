"""A sink in a process of its own, to be killed: `python sink_process.py BOOTSTRAP CLICKHOUSE_URL GROUP`."""

import logging
import sys
import threading

from pipeline.store.settings import settings_from_url
from pipeline.store.sink import SinkSettings, StoreSink

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    bootstrap, url, group = sys.argv[1:]
    settings = SinkSettings(
        bootstrap=bootstrap, store=settings_from_url(url), group=group, max_rows=500, max_age_s=0.1
    )  # fmt: skip
    StoreSink(settings).run(threading.Event())

"""The real parts `rootrank up` starts by itself: an Apache Kafka broker and the ClickHouse engine, one data folder."""

-- Rebuilding: events and incidents made again of the raw lines that are kept. Nothing is replaced in place: what is made
-- again has a higher version, and what no longer comes out is marked as gone, so that whatever arrives meanwhile stays.
ALTER TABLE events_rows
    ADD COLUMN IF NOT EXISTS is_gone Bool COMMENT 'a rebuild no longer makes it of its line; the views do not show it';

ALTER TABLE event_jobs_rows
    ADD COLUMN IF NOT EXISTS is_gone Bool COMMENT 'a rebuild no longer links them; the views do not show it';

CREATE OR REPLACE VIEW events AS
SELECT * EXCEPT (version, stored_at, is_gone)
FROM events_rows FINAL
WHERE NOT is_gone
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE OR REPLACE VIEW events_live AS SELECT * FROM events WHERE run = 'live';

CREATE OR REPLACE VIEW event_jobs AS
SELECT * EXCEPT (version, stored_at, is_gone)
FROM event_jobs_rows FINAL
WHERE NOT is_gone AND (run, run_id, cluster, job_key) NOT IN (SELECT run, run_id, cluster, alias FROM job_aliases)
SETTINGS do_not_merge_across_partitions_select_final = 1;

-- What was rebuilt, when and with which result; what is being rebuilt, and how far it is.
CREATE TABLE IF NOT EXISTS rebuilds_rows
(
    rebuild_id String,
    cluster LowCardinality(String) COMMENT 'empty: all',
    since Date COMMENT 'first day',
    until Date COMMENT 'last day',
    state LowCardinality(String) COMMENT 'reading, compared, swapping, done or dropped',
    engine_version LowCardinality(String),
    rules_digest LowCardinality(String),
    started_at DateTime64(3, 'UTC'),
    told_at DateTime64(3, 'UTC') COMMENT 'when the state was told last',
    counts Map(LowCardinality(String), UInt64) COMMENT 'lines, events and incidents, by what became of them'
)
ENGINE = ReplacingMergeTree(told_at)
ORDER BY rebuild_id
TTL toDateTime(told_at) + toIntervalDay(1825);

CREATE OR REPLACE VIEW rebuilds AS SELECT * FROM rebuilds_rows FINAL;

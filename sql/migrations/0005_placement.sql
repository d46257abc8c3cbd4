-- Who ran where: one row per node with the full list of spans, so that a newer list replaces the older one whole.
CREATE TABLE IF NOT EXISTS placement_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    node LowCardinality(String),
    spans Array(Tuple(
        job_id String,
        attempt UInt32,
        started_at DateTime64(9, 'UTC'),
        ended_at Nullable(DateTime64(9, 'UTC')),
        rank Nullable(Int32),
        local_rank Nullable(Int32),
        world_size Nullable(UInt32),
        pid Nullable(Int64),
        gpu_uuid Nullable(String),
        pci_bus_id Nullable(String),
        gpu_index Nullable(Int32),
        owner Nullable(String),
        scheduler Nullable(String),
        source String
    )),
    version UInt64,
    stored_at DateTime('UTC') DEFAULT now()
)
ENGINE = ReplacingMergeTree(version)
ORDER BY (run, run_id, cluster, node)
TTL stored_at + toIntervalDay(if(run = 'live', 400, 14));

CREATE VIEW IF NOT EXISTS placement AS
SELECT
    run, run_id, cluster, node,
    span.job_id AS job_id, span.attempt AS attempt, span.started_at AS started_at, span.ended_at AS ended_at,
    span.rank AS rank, span.local_rank AS local_rank, span.world_size AS world_size, span.pid AS pid,
    span.gpu_uuid AS gpu_uuid, span.pci_bus_id AS pci_bus_id, span.gpu_index AS gpu_index,
    span.owner AS owner, span.scheduler AS scheduler, span.source AS source
FROM placement_rows FINAL
ARRAY JOIN spans AS span;

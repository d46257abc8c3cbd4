-- Lines as they were read, in the column names of the OpenTelemetry log table.
-- One row per line: its address (reporter, source, generation, offset) within a run is its identity.
-- Every key and partition column is fixed by the shipper, so a line sent again replaces itself.
CREATE TABLE IF NOT EXISTS raw_lines_rows
(
    run LowCardinality(String),
    run_id LowCardinality(String),
    cluster LowCardinality(String),
    reporter LowCardinality(String),
    source LowCardinality(String),
    generation LowCardinality(String),
    offset UInt64 CODEC(Delta(8), ZSTD(1)),
    day Date COMMENT 'UTC day of ObservedTimestamp; 1970-01-01 where no host clock may be used (replay) or it is absurd',
    line_no Nullable(UInt64) CODEC(ZSTD(1)),
    seq UInt64 CODEC(Delta(8), ZSTD(1)),
    batch_seq UInt64 CODEC(Delta(8), ZSTD(1)),
    shipper_id LowCardinality(String),
    boot_id LowCardinality(String),
    machine_id LowCardinality(String),
    node LowCardinality(String) COMMENT 'the machine the source speaks about; the reporter where nothing else is said',
    truncated Bool,
    kernel_time_ns Nullable(Int64) CODEC(ZSTD(1)) COMMENT 'boot clock, where the transport carries one',
    Timestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)) COMMENT 'wall time of the transport, else ObservedTimestamp',
    ObservedTimestamp DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    SeverityText LowCardinality(String),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) COMMENT 'kind of the source: kernel, application, service',
    Body String CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)) COMMENT 'what the shipper says of the source',
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    version UInt64 CODEC(Delta(8), ZSTD(1)),
    stored_at DateTime('UTC') DEFAULT now(),
    INDEX body_tokens Body TYPE tokenbf_v1(32768, 3, 0) GRANULARITY 8,
    INDEX resource_keys mapKeys(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX resource_values mapValues(ResourceAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX log_keys mapKeys(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX log_values mapValues(LogAttributes) TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX observed ObservedTimestamp TYPE minmax GRANULARITY 1,
    INDEX nodes node TYPE set(100) GRANULARITY 4
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY (run, day)
ORDER BY (run, run_id, cluster, reporter, source, generation, offset)
TTL stored_at + toIntervalDay(if(run = 'live', 30, 7));

-- line_id is computed, not stored: it names the address, so count() = uniqExact(line_id) at any moment.
CREATE VIEW IF NOT EXISTS raw_lines AS
SELECT
    lower(hex(sipHash128(run, run_id, cluster, reporter, source, generation, offset))) AS line_id,
    run, run_id, cluster, reporter, source, generation, offset, day, line_no, seq, batch_seq,
    shipper_id, boot_id, machine_id, node, truncated, kernel_time_ns,
    Timestamp, ObservedTimestamp, SeverityText, SeverityNumber, ServiceName, Body, ResourceAttributes, LogAttributes
FROM raw_lines_rows FINAL
SETTINGS do_not_merge_across_partitions_select_final = 1;

CREATE VIEW IF NOT EXISTS raw_lines_live AS SELECT * FROM raw_lines WHERE run = 'live';

-- The exact columns that Grafana's ClickHouse data source and the OpenTelemetry exporter know.
CREATE VIEW IF NOT EXISTS otel_logs AS
SELECT
    Timestamp,
    toDateTime(Timestamp) AS TimestampTime,
    '' AS TraceId,
    '' AS SpanId,
    toUInt8(0) AS TraceFlags,
    SeverityText,
    SeverityNumber,
    ServiceName,
    Body,
    '' AS ResourceSchemaUrl,
    mapConcat(
        CAST(
            map('host.name', node, 'log.file.path', source, 'rootrank.cluster', cluster, 'rootrank.reporter', reporter),
            'Map(LowCardinality(String), String)'
        ),
        lines.ResourceAttributes
    ) AS ResourceAttributes,
    '' AS ScopeSchemaUrl,
    'rootrank' AS ScopeName,
    '' AS ScopeVersion,
    CAST(map(), 'Map(LowCardinality(String), String)') AS ScopeAttributes,
    LogAttributes,
    '' AS EventName
FROM raw_lines_live AS lines;

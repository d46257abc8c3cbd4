CREATE TABLE IF NOT EXISTS schema_migrations
(
    number UInt32,
    name String,
    checksum FixedString(64) COMMENT 'SHA-256 of the file',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = ReplacingMergeTree(applied_at)
ORDER BY number

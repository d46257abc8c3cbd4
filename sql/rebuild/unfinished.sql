SELECT
    rebuild_id, cluster, since, until, state, engine_version, rules_digest, toUnixTimestamp64Milli(started_at) AS started_ms,
    toUnixTimestamp64Milli(told_at) AS told_ms, counts
FROM rebuilds
WHERE state IN ('reading', 'compared', 'swapping')
ORDER BY told_at DESC
LIMIT 1

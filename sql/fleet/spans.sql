-- Everything that is told of units in [from_ns, to_ns): what was imported and streamed, who ran where, who was heard of.
-- Of installations those of all times: they decide whether a unit is known, and whether what an agent saw counts.
-- A span that ends before it begins comes once, on the day that it begins.
SELECT
    cluster, unit_kind, unit, kind, toUnixTimestamp64Nano(started_at) AS from_ns,
    ifNull(toUnixTimestamp64Nano(ended_at), -1) AS to_ns, node, facts, job_id, attempt, action, outcome, ticket, source,
    row
FROM fleet_spans
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND
    (
        (kind = 'installed' AND (ended_at IS NULL OR to_ns >= from_ns))
        OR (from_ns < {to_ns:Int64} AND (ended_at IS NULL OR to_ns > {from_ns:Int64}
            OR (to_ns < from_ns AND from_ns >= {from_ns:Int64})))
    )
UNION ALL
-- A GPU whose UUID is known is busy itself; of the others the node says how many are.
SELECT
    cluster, if(gpu != '', 'gpu', 'node') AS unit_kind, if(gpu != '', gpu, node) AS unit, 'busy' AS kind,
    toUnixTimestamp64Nano(min(p.started_at)) AS from_ns,
    if(countIf(p.ended_at IS NULL) > 0, -1, toUnixTimestamp64Nano(assumeNotNull(max(p.ended_at)))) AS to_ns,
    node,
    if(gpu != '' OR max(ranks) = 0, map(), map('gpus', toString(uniqExact((p.pci_bus_id, p.gpu_index, p.rank))))) AS facts,
    job_id, attempt, '' AS action, '' AS outcome, '' AS ticket, 'placement' AS source, 0 AS row
FROM
(
    -- What the scheduler tells of a job as a whole counts where no rank of it is known.
    SELECT
        *, ifNull(gpu_uuid, '') AS gpu,
        countIf(rank IS NOT NULL) OVER (PARTITION BY run, run_id, cluster, node, job_id, attempt) AS ranks
    FROM placement
) AS p
WHERE (ranks = 0 OR rank IS NOT NULL) AND run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND toUnixTimestamp64Nano(p.started_at) BETWEEN 1 AND {to_ns:Int64} - 1
GROUP BY cluster, node, gpu, job_id, attempt
HAVING to_ns = -1 OR to_ns > {from_ns:Int64}
UNION ALL
SELECT
    cluster, 'node' AS unit_kind, reporter AS unit, 'observed' AS kind,
    toUnixTimestamp64Nano(toDateTime64(started_at, 9, 'UTC')) AS from_ns,
    toUnixTimestamp64Nano(toDateTime64(ended_at, 9, 'UTC')) AS to_ns, reporter AS node, map() AS facts, '' AS job_id,
    0 AS attempt, '' AS action, '' AS outcome, '' AS ticket, 'agent' AS source, 0 AS row
FROM observed
WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND hour >= toStartOfHour(fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC'))
    AND hour < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND from_ns < {to_ns:Int64} AND to_ns > {from_ns:Int64}

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
    min(p.since_ns) AS from_ns, if(max(p.until_ns) = 9223372036854775807, -1, max(p.until_ns)) AS to_ns, node,
    if(gpu != '' OR max(ranks) = 0, map(), map('gpus', toString(uniqExact(p.rank)))) AS facts,
    job_id, attempt, '' AS action, '' AS outcome, '' AS ticket, 'placement' AS source, 0 AS row
FROM
(
    -- An agent tells the end of what it told the begin of. What the job's own lines tell holds as long as any rank of
    -- the attempt was heard of, which also says since when where no line does.
    SELECT
        cluster, node, job_id, attempt, rank, gpu, ranks,
        if(told_ns > 0, told_ns, h.first_ns) AS since_ns,
        multiIf(ended_ns > 0, ended_ns, is_told, 9223372036854775807, h.last_ns) AS until_ns
    FROM
    (
        -- What the scheduler tells of a job as a whole counts where no rank of it is known.
        SELECT
            cluster, node, job_id, attempt, rank, ifNull(gpu_uuid, '') AS gpu,
            toUnixTimestamp64Nano(placement.started_at) AS told_ns,
            ifNull(toUnixTimestamp64Nano(placement.ended_at), 0) AS ended_ns,
            countIf(rank IS NOT NULL) OVER (PARTITION BY run_id, cluster, node, job_id, attempt) AS ranks,
            countIf(placement.ended_at IS NULL
                AND (rank IS NULL OR scheduler != '' OR match(placement.source, '^(jobs|processes)[:/]')))
                OVER (PARTITION BY run_id, cluster, node, job_id, attempt) > 0 AS is_told
        FROM placement
        WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
    ) AS told
    LEFT JOIN
    (
        SELECT
            j.job_id AS job_id, j.attempt AS attempt, min(toUnixTimestamp64Nano(assumeNotNull(e.aligned_time))) AS first_ns,
            max(toUnixTimestamp64Nano(assumeNotNull(e.aligned_time))) AS last_ns
        FROM events AS e
        INNER JOIN
        (
            SELECT event_id, job_id, attempt
            FROM event_jobs
            WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
                AND (job_id, attempt) IN
                (
                    SELECT job_id, attempt
                    FROM placement
                    WHERE run = {run:String} AND run_id = {run_id:String} AND cluster = {cluster:String}
                        AND (ended_at IS NULL OR placement.started_at = toDateTime64(0, 9, 'UTC'))
                )
        ) AS j ON e.event_id = j.event_id
        WHERE e.run = {run:String} AND e.run_id = {run_id:String} AND e.cluster = {cluster:String}
            AND e.subject_rank IS NOT NULL AND e.aligned_time IS NOT NULL AND e.quality != 'none'
        GROUP BY job_id, attempt
    ) AS h ON told.job_id = h.job_id AND told.attempt = h.attempt
    WHERE (ranks = 0 OR rank IS NOT NULL) AND since_ns BETWEEN 1 AND {to_ns:Int64} - 1
) AS p
WHERE p.until_ns > p.since_ns
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

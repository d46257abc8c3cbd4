-- question: What changed between a good and a bad run: nodes, facts of their nodes and GPUs (driver, firmware, SKU, rack,
-- question: switch), and errors that only one of them has? Only what differs is shown.
-- param good:String | an attempt that went well, as JOB/ATTEMPT
-- param bad:String | one that did not
-- param run:String = live | live, replay or drill
-- param limit:UInt32 = 1000 | how many
-- example: rootrank query good_and_bad_runs --param good=48210/0 --param bad=48211/0
WITH
    told AS
    (
        SELECT
            run_id, cluster, concat(job_id, '/', toString(attempt)) AS attempt_of, arrayJoin(nodes) AS node,
            job_attempts.started_at AS since, ifNull(ended_at, now64(9)) AS until
        FROM job_attempts
        WHERE run = {run:String}
        UNION ALL
        SELECT
            run_id, cluster, concat(job_id, '/', toString(attempt)), node, placement.started_at, ifNull(ended_at, now64(9))
        FROM placement
        WHERE run = {run:String}
    ),
    runs AS
    (
        SELECT
            attempt_of = {bad:String} AS is_bad, run_id, cluster, node,
            minIf(since, toYear(since) > 1970) AS began_at, max(until) AS over_at
        FROM told
        WHERE attempt_of IN ({good:String}, {bad:String})
        GROUP BY is_bad, run_id, cluster, node
    ),
    facts_then AS
    (
        SELECT
            r.is_bad AS is_bad, arrayJoin(mapKeys(s.facts)) AS fact, s.unit_kind AS unit_kind, s.unit AS unit, r.node AS node,
            argMax(s.facts[fact], s.started_at) AS value
        FROM runs AS r
        INNER JOIN (SELECT *, if(unit_kind = 'node', unit, node) AS host FROM fleet_spans WHERE run = {run:String}) AS s
            ON r.run_id = s.run_id AND r.cluster = s.cluster AND r.node = s.host
        WHERE s.started_at < r.over_at AND (s.ended_at IS NULL OR s.ended_at > r.began_at)
        GROUP BY is_bad, fact, unit_kind, unit, node
    ),
    seen AS
    (
        SELECT is_bad, 'node' AS what, node AS value, toUInt64(1) AS weight FROM runs
        UNION ALL
        SELECT is_bad, concat(unit_kind, ' ', fact) AS what, value, count() AS weight
        FROM facts_then
        WHERE fact NOT IN ('pci_bus_id', 'gpu_index', 'serial')
        GROUP BY is_bad, what, value
        UNION ALL
        SELECT
            concat(j.job_id, '/', toString(j.attempt)) = {bad:String} AS is_bad, 'error' AS what,
            concat(e.name, if(e.attributes['xid'] = '', '', concat(' ', e.attributes['xid']))) AS value,
            sum(e.count) AS weight
        FROM events AS e
        INNER JOIN (SELECT * FROM event_jobs WHERE run = {run:String}
            AND concat(job_id, '/', toString(attempt)) IN ({good:String}, {bad:String})) AS j
            USING (run, run_id, cluster, event_id)
        WHERE e.role IN ('cause', 'intermediate', 'symptom')
            AND e.event_id IN (SELECT event_id FROM event_jobs WHERE run = {run:String}
                AND concat(job_id, '/', toString(attempt)) IN ({good:String}, {bad:String}))
        GROUP BY is_bad, value
    )
SELECT what, value, sumIf(weight, NOT is_bad) AS in_good, sumIf(weight, is_bad) AS in_bad
FROM seen
GROUP BY what, value
HAVING in_good != in_bad
ORDER BY in_good > 0 AND in_bad > 0, what, value
LIMIT {limit:UInt32}

-- question: What is known of a GPU's life: where it was from when to when, its drains and repairs, changes of driver or
-- question: firmware where it sat, the incidents it is blamed for, and its errors as episodes per day?
-- param gpu:String | UUID or serial number, as the inventory has it
-- param run:String = live | live, replay or drill
-- example: rootrank query gpu_life --param gpu=GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9
WITH
    own AS
    (
        SELECT * FROM fleet_spans WHERE run = {run:String} AND unit_kind = 'gpu' AND unit = {gpu:String}
    ),
    homes AS
    (
        SELECT run_id, cluster, node, started_at AS since, ifNull(ended_at, toDateTime64('2261-01-01', 9, 'UTC')) AS until
        FROM own
        WHERE kind = 'installed' AND node != ''
    )
SELECT at, until, what, node, detail, cluster, source, row
FROM
(
    SELECT
        started_at AS at, ended_at AS until, kind AS what, node,
        arrayStringConcat(arrayFilter(x -> x != '', [if(empty(facts), '', toString(facts)), job_id, action, outcome,
            ticket]), ', ') AS detail, cluster, source, row
    FROM own
    UNION ALL
    SELECT
        s.started_at AS at, s.ended_at AS until, concat('node ', s.kind) AS what, s.unit AS node,
        arrayStringConcat(arrayFilter(x -> x != '', [if(empty(s.facts), '', toString(s.facts)), s.action, s.outcome,
            s.ticket]), ', ') AS detail, s.cluster AS cluster, s.source AS source, s.row AS row
    FROM (SELECT * FROM fleet_spans WHERE run = {run:String} AND unit_kind = 'node'
        AND unit IN (SELECT node FROM homes) AND kind NOT IN ('busy', 'observed', 'installed')) AS s
    INNER JOIN homes AS h ON s.run_id = h.run_id AND s.cluster = h.cluster AND s.unit = h.node
    WHERE s.started_at < h.until AND (s.ended_at IS NULL OR s.ended_at > h.since)
    UNION ALL
    SELECT
        f.at AS at, NULL AS until, 'failure' AS what, node, concat(class, ', incident ', incident_id) AS detail, cluster,
        'incidents' AS source, 0 AS row
    FROM failure_days AS f
    WHERE run = {run:String} AND unit_kind = 'gpu' AND unit = {gpu:String}
    UNION ALL
    SELECT
        toDateTime64(day, 9, 'UTC') AS at, NULL AS until, 'errors' AS what, node,
        concat(name, if(xid IS NULL, '', concat(' ', toString(assumeNotNull(xid)))), ': ', toString(episodes), ' episodes, ',
            toString(lines), ' lines, driver ', driver) AS detail, cluster, 'episode_days' AS source, 0 AS row
    FROM episode_days
    WHERE run = {run:String} AND unit_kind = 'gpu' AND unit = {gpu:String}
)
ORDER BY at, what, node, detail
LIMIT 10000

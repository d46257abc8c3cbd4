-- question: What is known of a GPU's life: where it was from when to when, its drains and repairs, changes of driver or
-- question: firmware where it sat, the incidents it is blamed for, and its errors as episodes per day?
-- param gpu:String | UUID or serial number, as the inventory has it
-- param run:String = live | live, replay or drill
-- example: rootrank query gpu_life --param gpu=GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9
WITH
    -- Its spans are read once, into one value: read for every use of them, they would take half of the time.
    (
        SELECT groupArray((run_id, cluster, node, kind, started_at, ended_at, facts, job_id, action, outcome, ticket,
            source, row))
        FROM fleet_spans
        WHERE run = {run:String} AND unit_kind = 'gpu' AND unit = {gpu:String}
    ) AS own,
    arrayFilter(span -> span.4 = 'installed' AND span.3 != '', own) AS homes
SELECT at, until, what, node, detail, cluster, source, row
FROM
(
    SELECT
        span.5 AS at, span.6 AS until, span.4 AS what, span.3 AS node,
        arrayStringConcat(arrayFilter(x -> x != '', [if(empty(span.7), '', toString(span.7)), span.8, span.9, span.10,
            span.11]), ', ') AS detail, span.2 AS cluster, span.12 AS source, span.13 AS row
    FROM (SELECT arrayJoin(own) AS span)
    UNION ALL
    SELECT
        s.started_at AS at, s.ended_at AS until, concat('node ', s.kind) AS what, s.unit AS node,
        arrayStringConcat(arrayFilter(x -> x != '', [if(empty(s.facts), '', toString(s.facts)), s.action, s.outcome,
            s.ticket]), ', ') AS detail, s.cluster AS cluster, s.source AS source, s.row AS row
    FROM fleet_spans AS s
    WHERE s.run = {run:String} AND s.unit_kind = 'node' AND s.kind NOT IN ('busy', 'observed', 'installed')
        AND has(arrayMap(home -> home.3, homes), s.unit)
        AND arrayExists(home -> home.1 = s.run_id AND home.2 = s.cluster AND home.3 = s.unit
            AND (home.6 IS NULL OR s.started_at < home.6) AND (s.ended_at IS NULL OR s.ended_at > home.5), homes)
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

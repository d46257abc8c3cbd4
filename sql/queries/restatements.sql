-- question: Which days say something else than they said when a report was issued: old, new and why they were built again?
-- param as_of:String | when the report was issued (UTC), such as 2026-04-01 00:00:00
-- param from:String = | first UTC day; empty: all
-- param to:String = | last UTC day; empty: all
-- param cluster:String = | only this cluster
-- param run:String = live | live, replay or drill
-- example: rootrank query restatements --param "as_of=2026-04-01 00:00:00"
WITH
    if({from:String} = '', toDate('1970-01-01'), toDate(parseDateTime({from:String}, '%Y-%m-%d', 'UTC'))) AS first_day,
    if({to:String} = '', toDate('2149-06-06'), toDate(parseDateTime({to:String}, '%Y-%m-%d', 'UTC'))) AS last_day,
    told AS
    (
        SELECT
            run_id, cluster, day, concat(unit_kind, ' hours in service') AS what,
            sum(toUInt128(in_service_ns)) / 3.6e12 AS old, toFloat64(0) AS new
        FROM exposure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day, what
        UNION ALL
        SELECT
            run_id, cluster, day, concat(unit_kind, ' hours in service') AS what, toFloat64(0),
            sum(toUInt128(in_service_ns)) / 3.6e12
        FROM exposure_days
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day, what
        UNION ALL
        SELECT run_id, cluster, day, concat('failures, ', category) AS what, toFloat64(count()), toFloat64(0)
        FROM failure_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day, what
        UNION ALL
        SELECT run_id, cluster, day, concat('failures, ', category) AS what, toFloat64(0), toFloat64(count())
        FROM failure_days
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day, what
        UNION ALL
        SELECT run_id, cluster, day, 'episodes' AS what, toFloat64(sum(episodes)), toFloat64(0)
        FROM episode_days_as_of(as_of = {as_of:String})
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day
        UNION ALL
        SELECT run_id, cluster, day, 'episodes' AS what, toFloat64(0), toFloat64(sum(episodes))
        FROM episode_days
        WHERE run = {run:String} AND day BETWEEN first_day AND last_day
        GROUP BY run_id, cluster, day
    ),
    -- A day that nobody had built by then was not in the report: it is new, not restated.
    known AS (SELECT run_id, cluster, day FROM standing_builds_as_of(as_of = {as_of:String}) WHERE run = {run:String}),
    reasons AS
    (
        SELECT
            run_id, cluster, day, max(fleet_builds.built_at) AS rebuilt_at,
            arrayDistinct(groupArray(fleet_builds.why)) AS why
        FROM (SELECT * FROM fleet_builds ORDER BY built_at) AS fleet_builds
        WHERE run = {run:String} AND built_at > toDateTime64({as_of:String}, 3, 'UTC')
        GROUP BY run_id, cluster, day
    )
SELECT
    t.cluster AS cluster, t.day AS day, t.what AS what, sum(t.old) AS old, sum(t.new) AS new, any(r.rebuilt_at) AS rebuilt_at,
    any(r.why) AS why, t.run_id AS run_id
FROM told AS t
INNER JOIN reasons AS r USING (run_id, cluster, day)
WHERE (t.run_id, t.cluster, t.day) IN (SELECT run_id, cluster, day FROM known)
    AND ({cluster:String} = '' OR t.cluster = {cluster:String})
GROUP BY run_id, cluster, day, what
HAVING abs(old - new) > 1e-9
ORDER BY day, cluster, what

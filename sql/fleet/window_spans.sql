-- What lives, repairs and names of units are told by, as of a moment: when each was there; when it was out of service, of
-- all that ended on the day `first` or later; and the jobs that ended well on those that failed or were taken away, since
-- they say that a unit is trusted again. A node may be called by its name in one span, by its machine id in another.
WITH
    told AS
    (
        SELECT *
        FROM fleet_spans_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND ({cluster:String} = '' OR cluster = {cluster:String})
            AND (kind = 'installed' OR (kind = 'facts' AND unit_kind = 'node')
                OR ended_at IS NULL OR ended_at > toDateTime64({first:Date}, 9, 'UTC'))
            AND kind != 'observed' AND (kind != 'busy' OR outcome = 'completed')
    ),
    watched AS
    (
        SELECT cluster, unit FROM told WHERE kind NOT IN ('installed', 'facts', 'busy')
        UNION ALL
        SELECT cluster, arrayJoin([unit, node]) AS unit
        FROM failure_days_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
        WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
            AND ({cluster:String} = '' OR cluster = {cluster:String})
            AND day >= {first:Date} AND day <= {last:Date}
    ),
    called AS
    (
        SELECT DISTINCT
            cluster, unit, arrayJoin(arrayFilter(other -> other != '', [facts['name'], facts['machine_id']])) AS other
        FROM told
        WHERE unit_kind = 'node' AND (facts['name'] != '' OR facts['machine_id'] != '')
    )
SELECT
    cluster, unit_kind, unit, kind, toUnixTimestamp64Nano(started_at) AS from_ns,
    toUnixTimestamp64Nano(ended_at) AS to_ns, node, facts, job_id, attempt, action, outcome, ticket, source, row
FROM told
WHERE kind != 'busy'
    OR (cluster, unit) IN (SELECT cluster, unit FROM watched)
    OR (cluster, unit) IN (SELECT cluster, other FROM called WHERE (cluster, unit) IN (SELECT cluster, unit FROM watched))
    OR (cluster, unit) IN (SELECT cluster, unit FROM called WHERE (cluster, other) IN (SELECT cluster, unit FROM watched))
ORDER BY cluster, unit_kind, unit, from_ns, source, row

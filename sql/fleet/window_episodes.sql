-- Episodes of each kind on each unit over the days [first, last], as of a moment.
SELECT
    cluster, unit_kind, unit, any(sku), name, xid, sum(lines), sum(episodes), sumMap(by_window)
FROM episode_days_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
GROUP BY cluster, unit_kind, unit, name, xid
ORDER BY cluster, unit_kind, unit, name, xid

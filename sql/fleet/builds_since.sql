-- Why days of [first, last] were built after a moment, each reason once.
SELECT cluster, why, uniqExact(day) AS days
FROM fleet_builds
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
    AND built_at > {since:DateTime64(3, 'UTC')} AND built_at <= {as_of:DateTime64(3, 'UTC')}
GROUP BY cluster, why
ORDER BY cluster, why

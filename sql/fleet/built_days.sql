-- Which days of [first, last] are built, as of a moment.
SELECT cluster, day, run_id
FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
ORDER BY cluster, day, run_id

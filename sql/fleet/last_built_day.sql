-- The newest day that is built, as of a moment; no row where none is.
SELECT day
FROM standing_builds_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
ORDER BY day DESC
LIMIT 1

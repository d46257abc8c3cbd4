-- How many spans anybody told of.
SELECT count()
FROM fleet_spans
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})

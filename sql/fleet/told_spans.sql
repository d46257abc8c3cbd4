-- How many spans anybody told of.
SELECT count()
FROM fleet_spans
WHERE run = {run:String} AND ({cluster:String} = '' OR cluster = {cluster:String})

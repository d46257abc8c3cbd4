-- The sources of a reporter as last told, those without a line too.
SELECT source, kind, state, reason
FROM progress
WHERE run = 'live' AND run_id = {run_id:String} AND cluster = {cluster:String} AND reporter = {reporter:String}
    AND source != ''
ORDER BY source

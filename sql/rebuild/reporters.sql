-- Who sent lines. First those that speak of others: what they say of who ran where is known before those are read.
SELECT run_id, cluster, reporter, count() AS lines
FROM raw_lines
WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})
GROUP BY run_id, cluster, reporter
ORDER BY countIf(node != reporter) > 0 DESC, cluster, reporter, run_id

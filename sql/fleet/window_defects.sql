-- What cannot be true or cannot be counted on the days [first, last], as of a moment. What is wrong with
-- a span is found on each day that it touches, in the words of that day: it is told once, in those of the first.
SELECT kind, cluster, unit, argMin(detail, (day, detail)), source, row, toUnixTimestamp64Nano(at) AS at_ns
FROM data_quality_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({run_id:String} = '' OR run_id = {run_id:String})
    AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
GROUP BY kind, cluster, unit, source, row, at
ORDER BY kind, cluster, unit, source, row, at_ns

-- What cannot be true or cannot be counted on the days [first, last], as of a moment; each once.
SELECT kind, cluster, unit, detail, source, row, any(toUnixTimestamp64Nano(at)) AS at_ns
FROM data_quality_as_of(as_of = {as_of:DateTime64(3, 'UTC')})
WHERE run = {run:String} AND ({cluster:String} = '' OR cluster = {cluster:String})
    AND day >= {first:Date} AND day <= {last:Date}
GROUP BY kind, cluster, unit, detail, source, row
ORDER BY kind, cluster, unit, source, row, detail

-- question: Which lines were left out because nobody could prove who sent them, and why?
-- param reporter:String = | only in the name of this machine
-- param limit:UInt32 = 50 | how many groups
-- example: rootrank query unverified --param reporter=gpu-01
SELECT
    cluster, reporter, verified, record, counted, released_by, countIf(line > 0) AS lines,
    uniqExact(partition, offset) AS messages, min(reported_at) AS first, max(reported_at) AS last,
    argMax(substring(Body, 1, 120), (reported_at, offset, line)) AS last_line
FROM unverified
WHERE {reporter:String} = '' OR reporter = {reporter:String}
GROUP BY cluster, reporter, verified, record, counted, released_by
ORDER BY last DESC, reporter, verified
LIMIT {limit:UInt32}

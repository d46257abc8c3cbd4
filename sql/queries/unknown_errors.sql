-- question: Which lines look like errors, and no signal reads them? By shape: lines that differ in their values only.
-- param days:UInt32 = 7 | so far back, by the time at which they were read; lines without a time count too
-- param run:String = live | live, replay or drill; empty: all
-- param limit:UInt32 = 100 | how many shapes
-- example: rootrank query unknown_errors --param days=1
WITH
    '(?i)\\b(errors?|err|fail|failed|failure|fatal|exception|panic|abort|aborted|timeout|timed out|refused|denied|corrupt|corrupted|crash|crashed|killed|lost|unable|unreachable|unexpected|invalid|critical|bug)\\b' AS wrong,
    '\\b0x[0-9a-fA-F]+\\b|\\b[0-9a-f]{8,64}\\b|[0-9]+' AS values,
    -- Identical lines of one second are one event: of the others only the text tells that they were read.
    (
        SELECT groupUniqArray(5000)(substring(replaceRegexpAll(body, values, '#'), 1, 60))
        FROM events
        WHERE {run:String} = '' OR run = {run:String}
    ) AS known
SELECT
    replaceRegexpAll(substring(l.Body, 1, 300), values, '#') AS shape,
    count() AS lines, uniqExact(l.node) AS nodes, any(l.source) AS source, any(l.Body) AS example
FROM raw_lines AS l
WHERE match(l.Body, wrong)
    AND ({run:String} = '' OR l.run = {run:String})
    AND (toUnixTimestamp(l.ObservedTimestamp) = 0 OR l.ObservedTimestamp > now64(9) - toIntervalDay({days:UInt32}))
GROUP BY shape
HAVING NOT arrayExists(text -> text != '' AND position(shape, text) > 0, known)
ORDER BY lines DESC, shape
LIMIT {limit:UInt32}

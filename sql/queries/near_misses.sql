-- question: Which signals may have gone blind? Lines that hold the hint of a signal and fit no pattern: an emitter may
-- question: have changed its wording. `rootrank rules explain` says of an example where the pattern stops.
-- param days:UInt32 = 7 | so far back; lines without a time count too
-- param run:String = live | live, replay or drill; empty: all
-- example: rootrank query near_misses --param days=1
SELECT
    attributes['signal'] AS signal, attributes['hint'] AS hint, sum(count) AS lines, uniqExact(node) AS nodes,
    nullIf(max(ifNull(aligned_time, lo_time)), toDateTime64(0, 9, 'UTC')) AS last_seen, any(body) AS example
FROM events
WHERE name = 'unmatched.near_miss'
    AND ({run:String} = '' OR run = {run:String})
    AND (quality = 'none' OR aligned_time > now64(9) - toIntervalDay({days:UInt32}))
GROUP BY signal, hint
ORDER BY lines DESC, signal, hint
LIMIT 1000

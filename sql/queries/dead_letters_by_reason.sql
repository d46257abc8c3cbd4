-- question: What could not be used, and why?
-- param topic:String = | only this topic
-- param limit:UInt32 = 50 | how many reasons
-- example: rootrank query dead_letters_by_reason
SELECT
    topic, reason, count() AS messages, min(reported_at) AS first, max(reported_at) AS last,
    argMin(concat(topic, '/', toString(partition), '/', toString(offset)), reported_at) AS first_address,
    substring(argMin(data_bytes, reported_at), 1, 120) AS first_bytes
FROM dead_letters
WHERE {topic:String} = '' OR topic = {topic:String}
GROUP BY topic, reason
ORDER BY messages DESC, topic, reason
LIMIT {limit:UInt32}

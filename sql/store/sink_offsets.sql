SELECT partition, max(offset)
FROM sink_offsets
WHERE sink = {sink:String} AND topic = {topic:String} AND topic_id = {topic_id:String}
GROUP BY partition

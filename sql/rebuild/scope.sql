-- What lies in the days: lines, who sent them, events, and events whose line is no longer kept.
WITH
    kept_lines AS (SELECT cluster, reporter, source, generation, offset FROM raw_lines WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})),
    told_events AS (SELECT cluster, reporter, source, generation, offset FROM events WHERE run = 'live' AND day BETWEEN {since:Date} AND {until:Date} AND ({cluster:String} = '' OR cluster = {cluster:String}) AND source != 'annotation')
SELECT
    (SELECT count() FROM kept_lines) AS lines,
    (SELECT uniqExact(cluster, reporter) FROM kept_lines) AS reporters,
    (SELECT count() FROM told_events) AS events,
    (SELECT count() FROM told_events WHERE (cluster, reporter, source, generation, offset) NOT IN kept_lines) AS events_without_line,
    (
        SELECT count() FROM events
        WHERE run = 'live' AND day < {oldest:Date} AND ({cluster:String} = '' OR cluster = {cluster:String})
    ) AS events_before

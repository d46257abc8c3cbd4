-- Where events were placed in time when their lines came, by what was then measured or claimed of clocks.
SELECT
    event_id, clock_id, raw_ns, monotonic_raw_ns, monotonic_raw_width_ns,
    toUnixTimestamp64Nano(aligned_time) AS aligned_ns, toUnixTimestamp64Nano(lo_time) AS lo_ns,
    toUnixTimestamp64Nano(hi_time) AS hi_ns, u99_ns, clock_epoch, reference_broker, quality
FROM events
WHERE run = 'live' AND day = {day:Date} AND run_id = {run_id:String} AND cluster = {cluster:String}
    AND reporter = {reporter:String} AND aligned_time IS NOT NULL AND raw_ns IS NOT NULL

-- The events of one day: four in five are Xids, as kernels print them; no UUID, the bus id says which GPU.
INSERT INTO events_rows
    (run, run_id, cluster, reporter, event_id, day, name, node, boot_id, machine_id, shipper_id, batch_seq, source,
    generation, offset, line_no, seq, body, clock_id, raw_ns, monotonic_raw_ns, monotonic_raw_width_ns, observed_time,
    aligned_time, lo_time, hi_time, u99_ns, clock_epoch, reference_broker, quality, severity, severity_number, label,
    role, scope, subject_node, subject_pci_bus_id, attributes, count, version)
WITH
    sipHash64(number, {day:Date}) AS dice, dice % {gpus:UInt64} AS gpu, intDiv(gpu, 8) AS place,
    concat('n', leftPad(toString(place), 6, '0')) AS host, intDiv(dice, 7919) % 10 AS kind, kind < 8 AS is_xid,
    [31, 13, 94, 63, 119, 74, 79, 48][kind + 1] AS xid,
    concat('0000:', lower(hex(toUInt8(16 + 16 * (gpu % 8)))), ':00') AS bus,
    toUnixTimestamp({day:Date}, 'UTC') * 1000000000 + intDiv(dice, 104729) % 86400000000000 AS at_ns,
    fromUnixTimestamp64Nano(toInt64(at_ns), 'UTC') AS at,
    multiIf(is_xid, 'gpu.xid', kind = 8, 'nccl.watchdog.timeout', 'ib.link_down') AS event
SELECT
    'live', 'bench', concat('c', toString(intDiv(gpu * 4, {gpus:UInt64}))), host, lower(hex(dice)), {day:Date}, event,
    host, concat('b', toString(place)), concat('m', toString(place)), 's1', intDiv(number, 100), 'kmsg', '1', number,
    NULL, number, if(is_xid, concat('NVRM: Xid (PCI:', bus, '): ', toString(xid), ', pid=', toString(dice % 99999),
        ', name=python3, Ch ', toString(intDiv(dice, 31) % 99)), concat(event, ' on ', host, ' at step ',
        toString(intDiv(dice, 37) % 100000))),
    'k', toInt64(at_ns), toInt64(at_ns % 86400000000000), 0, at, at, at - toIntervalMillisecond(1),
    at + toIntervalMillisecond(1), 500000, 0, 1, 'good', 'error', 17,
    multiIf(is_xid, 'hardware/gpu_xid', kind = 8, 'network/nccl_timeout', 'network/ib_link'),
    if(kind = 8, 'symptom', 'cause'), if(is_xid, 'gpu', 'node'), host, if(is_xid, concat(bus, '.0'), NULL),
    if(is_xid, map('xid', toString(xid)), map()), 1, number
FROM numbers({first:UInt64}, {rows:UInt64})
SETTINGS optimize_on_insert = 0

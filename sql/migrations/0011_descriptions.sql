-- What the views and their columns mean, for people and assistants: `rootrank tables`, the page /tables and docs/tables.md
-- are made of these comments. A column that says nothing here means what it means in its `…_rows` table, else what the
-- same name means in the first view that says it. A view that is replaced loses its comments: give them again there.

ALTER TABLE raw_lines MODIFY COMMENT 'A line as it was read, with who read it and when. 30 days.';

ALTER TABLE raw_lines
    COMMENT COLUMN line_id 'names the address of the line; the same however often it is sent',
    COMMENT COLUMN run 'live, replay or drill',
    COMMENT COLUMN run_id 'which replay or drill; for live lines always the same',
    COMMENT COLUMN cluster 'the cluster it is of',
    COMMENT COLUMN reporter 'the machine that sent it',
    COMMENT COLUMN source 'the file or log it stands in, relative to its root',
    COMMENT COLUMN generation 'which file of this name: inode and fingerprint of its beginning',
    COMMENT COLUMN offset 'where it begins: bytes; for the kernel log the number of the record',
    COMMENT COLUMN line_no 'its number in the file, from 1',
    COMMENT COLUMN seq 'counts the lines that the shipper has read',
    COMMENT COLUMN batch_seq 'counts the batches of the shipper',
    COMMENT COLUMN shipper_id 'which process of the agent sent it',
    COMMENT COLUMN boot_id 'the boot of the machine in which it was read',
    COMMENT COLUMN machine_id 'what names the machine for good: DMI, else the id of the provider',
    COMMENT COLUMN truncated 'the line was longer and is cut',
    COMMENT COLUMN ObservedTimestamp 'when it was read, by the clock of the machine',
    COMMENT COLUMN SeverityText 'as syslog or the kernel states it; empty: not stated',
    COMMENT COLUMN SeverityNumber 'OpenTelemetry number of that; 0: not stated',
    COMMENT COLUMN Body 'the text of the line',
    COMMENT COLUMN LogAttributes 'what the transport says of the line';

ALTER TABLE raw_lines_live MODIFY COMMENT 'Lines of live runs alone.';

ALTER TABLE otel_logs MODIFY COMMENT 'Live lines in the columns of the OpenTelemetry log table, for Grafana.';

ALTER TABLE otel_logs
    COMMENT COLUMN TimestampTime 'Timestamp in whole seconds',
    COMMENT COLUMN TraceId 'always empty',
    COMMENT COLUMN SpanId 'always empty',
    COMMENT COLUMN TraceFlags 'always 0',
    COMMENT COLUMN ResourceSchemaUrl 'always empty',
    COMMENT COLUMN ScopeSchemaUrl 'always empty',
    COMMENT COLUMN ScopeName 'rootrank',
    COMMENT COLUMN ScopeVersion 'always empty',
    COMMENT COLUMN ScopeAttributes 'always empty',
    COMMENT COLUMN EventName 'always empty';

ALTER TABLE events MODIFY COMMENT 'A line that means something. It names no job: join event_jobs. 400 days.';

ALTER TABLE events
    COMMENT COLUMN event_id 'names the line and what it says; the same in every run',
    COMMENT COLUMN name 'what it says, in dots: gpu.xid, nccl.watchdog.timeout, process.exit',
    COMMENT COLUMN node 'the machine it speaks of',
    COMMENT COLUMN body 'the text of the line, without its prefixes',
    COMMENT COLUMN clock_id 'the clock that stamped it; stamps of one clock compare exactly',
    COMMENT COLUMN raw_ns 'what that clock showed, ns',
    COMMENT COLUMN observed_time 'when it was read, by the clock of the machine',
    COMMENT COLUMN aligned_time 'when it happened on the common timeline; null: not known',
    COMMENT COLUMN lo_time 'not before this',
    COMMENT COLUMN hi_time 'not after this',
    COMMENT COLUMN u99_ns 'in 99 of 100 cases aligned_time is right within this',
    COMMENT COLUMN clock_epoch 'counts what broke the line of the clock: steps, a suspend',
    COMMENT COLUMN reference_broker 'the broker whose clock is the reference; negative: a claim',
    COMMENT COLUMN quality 'of the time: good, holdover, stepped or none',
    COMMENT COLUMN severity 'fatal, critical, error, warning, info, debug or trace',
    COMMENT COLUMN label 'the class that such a line speaks for',
    COMMENT COLUMN role 'cause, intermediate, symptom, context or noise',
    COMMENT COLUMN scope 'whom it concerns: gpu, nic, node, rank, job, fabric, storage, for example',
    COMMENT COLUMN subject_node 'the machine that is meant',
    COMMENT COLUMN subject_machine_id 'the machine that is meant, by the name it has for good',
    COMMENT COLUMN subject_gpu_uuid 'the GPU that is meant, by UUID',
    COMMENT COLUMN subject_serial 'the part that is meant, by serial number',
    COMMENT COLUMN subject_pci_bus_id 'the device that is meant, by its place on the bus',
    COMMENT COLUMN subject_gpu_index 'the GPU that is meant, by NVML''s index',
    COMMENT COLUMN subject_nic 'the network interface that is meant',
    COMMENT COLUMN subject_link 'the link that is meant',
    COMMENT COLUMN subject_switch 'the switch that is meant',
    COMMENT COLUMN subject_nvlink_domain 'the NVLink domain that is meant',
    COMMENT COLUMN subject_rank 'the rank that is meant',
    COMMENT COLUMN subject_local_rank 'the rank on its node that is meant',
    COMMENT COLUMN subject_pid 'the process that is meant',
    COMMENT COLUMN subject_process_group 'the process group that is meant',
    COMMENT COLUMN attributes 'what else the line says, by name with its unit',
    COMMENT COLUMN count 'lines it stands for: those that say the same in one second are one event';

ALTER TABLE events_live MODIFY COMMENT 'Events of live runs alone.';

ALTER TABLE events_aligned MODIFY COMMENT 'Events, placed in time again with the clock segments that are known by now.';

ALTER TABLE events_aligned
    COMMENT COLUMN realigned 'whether a segment holds; else the stored times stand',
    COMMENT COLUMN stored_aligned_time 'aligned_time as it was stored',
    COMMENT COLUMN stored_lo_time 'lo_time as it was stored',
    COMMENT COLUMN stored_hi_time 'hi_time as it was stored',
    COMMENT COLUMN stored_quality 'quality as it was stored';

ALTER TABLE events_aligned_live MODIFY COMMENT 'Events of live runs alone, placed in time again.';

ALTER TABLE event_jobs MODIFY COMMENT 'The link of an event to a job attempt; an event of a node with two jobs has two.';

ALTER TABLE event_jobs
    COMMENT COLUMN job_key 'the attempt: cluster, job and attempt',
    COMMENT COLUMN job_id 'the job, as its scheduler names it',
    COMMENT COLUMN attempt 'counts its starts, from 0';

ALTER TABLE job_aliases MODIFY COMMENT 'A key of a job attempt that means another one.';

ALTER TABLE job_aliases
    COMMENT COLUMN alias 'the other key',
    COMMENT COLUMN why 'how it is known';

ALTER TABLE incident_revisions MODIFY COMMENT 'A revision of an incident; the latest stands. 5 years.';

ALTER TABLE incident_revisions
    COMMENT COLUMN incident_id 'names the incident; the same in every run and in every revision',
    COMMENT COLUMN revision 'counts from 1',
    COMMENT COLUMN schema_version 'of the record in `incident`',
    COMMENT COLUMN engine_version 'the rootrank that made it',
    COMMENT COLUMN rules_digest 'the rules that made it',
    COMMENT COLUMN synthetic 'it was made by a drill',
    COMMENT COLUMN verdict 'provisional or settled',
    COMMENT COLUMN state 'open, resolved, superseded or retracted',
    COMMENT COLUMN superseded_by 'the incident that speaks for it',
    COMMENT COLUMN severity 'critical, error or warning',
    COMMENT COLUMN class 'what broke, as domain/kind',
    COMMENT COLUMN xid 'Xid number of the root',
    COMMENT COLUMN sxid 'SXid number of the root',
    COMMENT COLUMN labels 'classes that its chain speaks for',
    COMMENT COLUMN job_ids 'jobs it hit',
    COMMENT COLUMN job_attempts 'attempts, in the order of job_ids',
    COMMENT COLUMN started_at 'when the root happened',
    COMMENT COLUMN started_error_ns 'and within what',
    COMMENT COLUMN detected_at 'when it was first told',
    COMMENT COLUMN detected_error_ns 'and within what',
    COMMENT COLUMN ended_at 'when the last of it happened',
    COMMENT COLUMN ended_error_ns 'and within what',
    COMMENT COLUMN stall_started_at 'when the job stopped making progress',
    COMMENT COLUMN stall_started_error_ns 'and within what',
    COMMENT COLUMN culprit_nodes 'machines it is blamed on',
    COMMENT COLUMN culprit_ranks 'ranks it is blamed on',
    COMMENT COLUMN why_unknown 'why nobody is blamed',
    COMMENT COLUMN confidence 'how likely it is right, 0 to 1, as measured',
    COMMENT COLUMN phase 'what the job was doing',
    COMMENT COLUMN interruption 'what became of the job: soft, hard, hang, slow or none',
    COMMENT COLUMN ranks_hit 'ranks that failed or waited',
    COMMENT COLUMN nodes_hit 'nodes that failed or waited',
    COMMENT COLUMN first_failing_rank 'the first rank that reported a failure',
    COMMENT COLUMN silent_ranks 'ranks that said nothing when others failed',
    COMMENT COLUMN reporting_ranks 'ranks that reported a failure',
    COMMENT COLUMN suppressed_lines 'lines that repeat what the chain shows',
    COMMENT COLUMN explanation 'the incident in sentences',
    COMMENT COLUMN action_kind 'what to do',
    COMMENT COLUMN action_target 'to what',
    COMMENT COLUMN action_why 'why',
    COMMENT COLUMN action_reference 'where that is written',
    COMMENT COLUMN last_checkpoint 'the last checkpoint that was saved',
    COMMENT COLUMN checkpoint_at 'when',
    COMMENT COLUMN lost_gpu_hours 'work since then, GPU hours',
    COMMENT COLUMN resume_from 'from where the job can go on',
    COMMENT COLUMN not_network_because 'why the network is not to blame, where it looks like it',
    COMMENT COLUMN gap_count 'losses that it knows of';

ALTER TABLE incidents MODIFY COMMENT 'The latest revision of each incident.';

ALTER TABLE incidents_live MODIFY COMMENT 'The latest revision of each incident of live runs.';

ALTER TABLE chain_steps MODIFY COMMENT 'A step of the proof of an incident, from root to symptoms.';

ALTER TABLE chain_steps
    COMMENT COLUMN step 'its number, from 1',
    COMMENT COLUMN event 'name of the event',
    COMMENT COLUMN role 'root, cascade, symptom or context',
    COMMENT COLUMN label 'the class that the line speaks for',
    COMMENT COLUMN error_ns 'and within what',
    COMMENT COLUMN count 'lines it stands for',
    COMMENT COLUMN ranks 'ranks that said it',
    COMMENT COLUMN evidence_source 'the file that the line stands in',
    COMMENT COLUMN evidence_line_no 'its number there',
    COMMENT COLUMN evidence_offset 'where it begins there',
    COMMENT COLUMN evidence_text 'the line',
    COMMENT COLUMN after_why 'why it follows from that step',
    COMMENT COLUMN after_order 'how sure the clocks are of it: certain, probable or concurrent';

ALTER TABLE culprits MODIFY COMMENT 'What broke the run: a culprit of an incident, by every name that the evidence gives.';

ALTER TABLE culprits
    COMMENT COLUMN gpu_uuid 'UUID of the GPU',
    COMMENT COLUMN serial 'serial number of the part',
    COMMENT COLUMN pci_bus_id 'place on the bus of the device',
    COMMENT COLUMN gpu_index 'NVML''s index of the GPU',
    COMMENT COLUMN nic 'the network interface',
    COMMENT COLUMN link 'the link',
    COMMENT COLUMN switch 'the switch',
    COMMENT COLUMN nvlink_domain 'the NVLink domain',
    COMMENT COLUMN rank 'the rank in the job',
    COMMENT COLUMN local_rank 'the rank on its node',
    COMMENT COLUMN pid 'the process',
    COMMENT COLUMN process_group 'the process group';

ALTER TABLE gaps MODIFY COMMENT 'Something that was lost or could not be read, once however often it is told.';

ALTER TABLE gaps
    COMMENT COLUMN reason 'why',
    COMMENT COLUMN from_offset 'from where',
    COMMENT COLUMN to_offset 'to where',
    COMMENT COLUMN lost_lines 'how many lines, where known',
    COMMENT COLUMN lost_bytes 'how many bytes, where known';

ALTER TABLE gaps_live MODIFY COMMENT 'Losses of live runs alone.';

ALTER TABLE dead_letters MODIFY COMMENT 'A message that could not be used, with its address. 90 days.';

ALTER TABLE dead_letters
    COMMENT COLUMN topic 'the Kafka topic',
    COMMENT COLUMN partition 'the Kafka partition',
    COMMENT COLUMN offset 'the Kafka offset',
    COMMENT COLUMN reason 'why it could not be used',
    COMMENT COLUMN key 'its key',
    COMMENT COLUMN data_bytes 'its bytes',
    COMMENT COLUMN observed_time 'when it was given up';

ALTER TABLE progress MODIFY COMMENT 'How far a source was read, as last told; an empty source is the reporter itself.';

ALTER TABLE progress
    COMMENT COLUMN kind 'kernel, application, service or telemetry',
    COMMENT COLUMN state 'on, off or refused',
    COMMENT COLUMN reason 'why it is not on',
    COMMENT COLUMN backlog_bytes 'what is still to be read',
    COMMENT COLUMN at_end 'it was read to its end',
    COMMENT COLUMN ended 'no more will come',
    COMMENT COLUMN last_batch_seq 'the last batch that was sent',
    COMMENT COLUMN spool_backlog_bytes 'what waits on the disk of the node';

ALTER TABLE progress_live MODIFY COMMENT 'Progress of live runs alone.';

ALTER TABLE shippers MODIFY COMMENT 'Which process of the agent spoke for a machine, from when to when.';

ALTER TABLE shippers
    COMMENT COLUMN first_seen 'when it spoke first',
    COMMENT COLUMN last_seen 'when it spoke last';

ALTER TABLE shipper_conflicts MODIFY COMMENT 'Two agents that spoke for one machine at the same time.';

ALTER TABLE shipper_conflicts
    COMMENT COLUMN other_shipper_id 'the other process',
    COMMENT COLUMN overlap_from 'from when both spoke',
    COMMENT COLUMN overlap_to 'to when both spoke';

ALTER TABLE placement MODIFY COMMENT 'A process of a job on a node, from when to when.';

ALTER TABLE placement
    COMMENT COLUMN started_at 'when it began',
    COMMENT COLUMN ended_at 'when it ended; null: not known',
    COMMENT COLUMN world_size 'ranks of the job',
    COMMENT COLUMN owner 'whose job it is',
    COMMENT COLUMN scheduler 'who placed it';

ALTER TABLE clock_segments MODIFY COMMENT 'A node''s clock against a broker''s over a span of its raw clock. 90 days.';

ALTER TABLE clock_segments
    COMMENT COLUMN b_ppb 'how much faster the reference runs, in 1e-9',
    COMMENT COLUMN hi_ns 'the truth is certain to lie up to this beside it',
    COMMENT COLUMN reason 'why nothing is measured',
    COMMENT COLUMN from_time 'from when, on the common timeline',
    COMMENT COLUMN to_time 'to when';

ALTER TABLE clock_segments_live MODIFY COMMENT 'Clock segments of live runs alone.';

ALTER TABLE clocks MODIFY COMMENT 'The newest clock of each node, with its age.';

ALTER TABLE clocks
    COMMENT COLUMN bound_ns 'how far off it may be at most',
    COMMENT COLUMN last_wall_step_ns 'the last jump of the wall clock',
    COMMENT COLUMN last_wall_step_at 'when that was',
    COMMENT COLUMN age_s 'how long ago it was told, s';

ALTER TABLE clocks_live MODIFY COMMENT 'Clocks of live runs alone.';

ALTER TABLE rebuilds MODIFY COMMENT 'What was rebuilt of raw lines, when, and with which result.';

ALTER TABLE rebuilds
    COMMENT COLUMN rebuild_id 'when it began',
    COMMENT COLUMN started_at 'when it began';

-- What the views of the fleet and their columns mean; see 0010_descriptions.sql.

ALTER TABLE fleet_spans MODIFY COMMENT 'A span of a unit''s life as it was told: installed, in drain, in repair, busy, observed. 5 years.';

ALTER TABLE fleet_spans
    COMMENT COLUMN outcome 'what became of it',
    COMMENT COLUMN ticket 'where it is written down';

ALTER TABLE job_attempts MODIFY COMMENT 'A job attempt as its scheduler tells it. 5 years.';

ALTER TABLE job_attempts
    COMMENT COLUMN nodes 'machines it ran on',
    COMMENT COLUMN gpus 'GPUs it had; null: not told',
    COMMENT COLUMN queued_ns 'how long it waited, ns';

ALTER TABLE corrections MODIFY COMMENT 'The last word of a person on an incident.';

ALTER TABLE corrections
    COMMENT COLUMN corrected_at 'when it was said',
    COMMENT COLUMN corrected_by 'who said it';

ALTER TABLE fleet_builds MODIFY COMMENT 'A build of a day of the fleet, and why it was made.';

ALTER TABLE fleet_builds
    COMMENT COLUMN built_at 'when the day was built';

ALTER TABLE standing_builds MODIFY COMMENT 'The build of each day that counts.';

ALTER TABLE standing_builds
    COMMENT COLUMN build 'names the build';

ALTER TABLE exposure_days MODIFY COMMENT 'Time at risk of a unit on a day, in the cohort it then belonged to.';

ALTER TABLE exposure_days
    COMMENT COLUMN sku 'model of the unit',
    COMMENT COLUMN driver 'version of its driver',
    COMMENT COLUMN rack 'rack it stood in',
    COMMENT COLUMN position 'its place there',
    COMMENT COLUMN firmware 'version of its firmware',
    COMMENT COLUMN batch 'batch it was delivered in',
    COMMENT COLUMN installed_ns 'time it was in the fleet, ns',
    COMMENT COLUMN in_service_ns 'of that neither in drain nor in repair, ns',
    COMMENT COLUMN busy_ns 'of that with a job, ns',
    COMMENT COLUMN observed_ns 'of that with an agent that watched it, ns',
    COMMENT COLUMN unit_id 'names the unit within its kind';

ALTER TABLE episode_days MODIFY COMMENT 'Episodes of a kind of event on a unit on a day: lines that tell of one fault count once.';

ALTER TABLE episode_days
    COMMENT COLUMN lines 'lines that told of it',
    COMMENT COLUMN episodes 'episodes by the window of the class',
    COMMENT COLUMN by_window 'episodes by other windows, in seconds';

ALTER TABLE failure_days MODIFY COMMENT 'An incident that counts as a failure, on the unit it is blamed on.';

ALTER TABLE failure_days
    COMMENT COLUMN component 'part that failed',
    COMMENT COLUMN job_gpus 'GPUs of the job that it hit';

ALTER TABLE data_quality MODIFY COMMENT 'Something told of the fleet that cannot be true or cannot be counted.';

ALTER TABLE data_quality
    COMMENT COLUMN detail 'what is wrong';

ALTER TABLE observed MODIFY COMMENT 'When the agent of a machine was heard of, by the minute; within an hour. 400 days.';

ALTER TABLE observed
    COMMENT COLUMN hour 'the hour it is within',
    COMMENT COLUMN started_at 'the begin of the first minute',
    COMMENT COLUMN ended_at 'the end of the last minute';

ALTER TABLE exposure_days
    COMMENT COLUMN day 'the UTC day it is of',
    COMMENT COLUMN unit 'a GPU by UUID or serial number, a node by machine id or name',
    COMMENT COLUMN node 'the node a GPU sat in; of a node itself';

ALTER TABLE episode_days
    COMMENT COLUMN day 'the UTC day it is of',
    COMMENT COLUMN unit 'a GPU by UUID or serial number, else node/bus address; a node by machine id or name; empty: nobody';

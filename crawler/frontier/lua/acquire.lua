#!lua flags=allow-oom
-- acquire: take the lease of a partition by compare-and-set on the lease that was read. The new epoch is above the stored one
-- and above any that this session tried. Claims of earlier epochs have expired from now on: all deadlines are 0.
-- KEYS  meta
-- ARGV  AcquireArgs
-- returns {'CHANGED', session, node, epoch} | {'ACQUIRED', epoch, clock (ms), log entries, pending URLs}
local m = call('HMGET', ctx.meta_key, 'session', 'node', 'epoch', 'clock', 'added', 'done')
local holder, epoch, clock = m[1] or '', tonumber(m[3]) or 0, tonumber(m[4]) or 0
if holder ~= ARGV[AcquireArgs.session_seen] or epoch ~= tonumber(ARGV[AcquireArgs.epoch_seen]) then return {'CHANGED', holder, m[2] or '', epoch} end
epoch = math.max(epoch, tonumber(ARGV[AcquireArgs.floor])) + 1
local session, node, engine = ARGV[AcquireArgs.session], ARGV[AcquireArgs.node], ARGV[AcquireArgs.engine_run]
call('HSET', ctx.meta_key, 'session', session, 'node', node, 'epoch', epoch, 'engine', engine)
keep_hash_key(ARGV[AcquireArgs.hash_key])
local open = call('EXISTS', ctx.prefix .. 'x') == 1
-- The last owner did not release it, or released it with claims open: when it last fetched something is unknown. So
-- there is a hold: no queue is due before this time plus its own delay (due_of in _queue.lua). Nothing removes a hold,
-- it is only passed: a session that takes over and releases at once has fetched nothing, and its clean release must not
-- end the hold. A queue whose delay is raised long after may wait once more, for at most that delay.
if holder ~= '' or open then call('HSET', ctx.meta_key, 'hold', clock) end
if open then call('ZUNIONSTORE', ctx.prefix .. 'x', 1, ctx.prefix .. 'x', 'WEIGHTS', 0) end
return {'ACQUIRED', epoch, clock, call('HLEN', ctx.prefix .. 'l'), (tonumber(m[5] or nil) or 0) - (tonumber(m[6] or nil) or 0)}

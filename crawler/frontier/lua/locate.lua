#!lua flags=no-writes,allow-oom
-- locate: everything that the partition stores about one URL, except in queues. Reads only.
-- KEYS  meta
-- ARGV  LocateArgs
-- returns {seen, dead letter, commit entry, clock, session, node, epoch, record of the queue}, with '' for missing ones
local fp, queue = ARGV[LocateArgs.fingerprint], ARGV[LocateArgs.queue]
local function text(v) if v == nil or v == false then return '' end return tostring(v) end
local seen = is_seen(seen_set(ARGV[LocateArgs.run]), fp) and 1 or 0
local m = call('HMGET', ctx.meta_key, 'clock', 'session', 'node', 'epoch')
local record = call('GET', ctx.prefix .. 'w:' .. queue) or compact_get('h', queue) or ''
return {text(seen), text(call('HGET', ctx.prefix .. 'dead', fp)), text(call('HGET', ctx.prefix .. 'l', fp .. ':' .. ARGV[LocateArgs.visit])),
  text(m[1]), text(m[2]), text(m[3]), text(m[4]), record}

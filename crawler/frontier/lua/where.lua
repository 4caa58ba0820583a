#!lua flags=no-writes,allow-oom
-- where: what the partition knows of one URL that is not in a queue. Reads only.
-- KEYS  meta
-- ARGV  run, fingerprint, visit, queue
-- returns {seen, letter, entry, clock, session, node, epoch, next fetch, delay, claims out} with '' for what is not there
--@include _fence _seen _shelf _idle
local fp, queue = ARGV[2], ARGV[4]
local function text(v) if v == nil or v == false then return '' end return tostring(v) end
local buckets = tonumber(call('HGET', M, 'buckets' .. ARGV[1]) or nil) or 1
local seen = call('SISMEMBER', P .. 's' .. ARGV[1] .. ':' .. bucket_of(fp, buckets, level_of(buckets)), fp)
local m = call('HMGET', M, 'clock', 'session', 'node', 'epoch')
local w = call('HMGET', P .. 'w:' .. queue, 'next', 'delay', 'out')
local packed = not w[1] and shelf_get('h', queue)
if packed then w[2] = string.match(packed, ' delay=(%d+)') end
return {text(seen), text(call('HGET', P .. 'dead', fp)), text(call('HGET', P .. 'l', fp .. ':' .. ARGV[3])),
  text(m[1]), text(m[2]), text(m[3]), text(m[4]), text(w[1]), text(w[2]), text(w[3])}

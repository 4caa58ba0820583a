#!lua flags=allow-oom
-- join: add a session to the member list under its node's name, by compare-and-set on the session that had the name. Counts
-- how often the node joined since it last ran steadily; a repeat of the same join counts once.
-- KEYS  members, nodes, returns, evicted (all '{crawl}:...')
-- ARGV  JoinArgs. instead_of: the session seen under that name ('' for none)
-- returns {'TAKEN', session} | {'EVICTED'} | {'COMMITTED', number of joins}
if redis.call('HEXISTS', KEYS[4], ARGV[JoinArgs.session]) == 1 then return {'EVICTED'} end
local held = redis.call('HGET', KEYS[2], ARGV[JoinArgs.node]) or ''
if held ~= '' and held ~= ARGV[JoinArgs.instead_of] and held ~= ARGV[JoinArgs.session] then return {'TAKEN', held} end
if held ~= '' and held ~= ARGV[JoinArgs.session] then
  redis.call('HDEL', KEYS[1], held)
  redis.call('HDEL', KEYS[4], held)
end
redis.call('HSET', KEYS[2], ARGV[JoinArgs.node], ARGV[JoinArgs.session])
local fresh = redis.call('HSET', KEYS[1], ARGV[JoinArgs.session], ARGV[JoinArgs.blob]) == 1
return {'COMMITTED', redis.call('HINCRBY', KEYS[3], ARGV[JoinArgs.node], fresh and 1 or 0)}

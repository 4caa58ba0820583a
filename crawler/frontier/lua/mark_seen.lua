#!lua
-- mark_seen: URLs that another crawl has fetched count as seen, and as refused for the reason, unless the engine knows them.
-- Without a fence. Idempotent. Refused when out of memory.
-- KEYS  meta
-- ARGV  run, msgpack list of {fingerprint, queue, domain}; reason; the crawl's hash key
-- returns how many were unknown
local run, reason, fresh = ARGV[1], 'refused:' .. ARGV[3], 0
keep_hash_key(ARGV[4])
for _, item in ipairs(cmsgpack.unpack(ARGV[2])) do
  if see(seen_set(run), item[1]) then
    fresh = fresh + 1
    local r = record_of(item[2])
    meet(r, item[3], 1)
    count_in(r, reason, 1)
  end
end
if fresh == 0 then return 0 end
for _, name in ipairs({'added', 'done', reason, 'seen' .. run}) do count(ctx.total, name, fresh) end
close_call()
return fresh

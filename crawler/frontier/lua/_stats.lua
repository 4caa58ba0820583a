-- top: zset of the queues with most pages (2xx), for reports; at most TOP_MAX of them. meta's top_min is its lowest value
-- when it is full, so that most commits need not read it.
local TOP_MAX = 128

local function rank_queues(top_min)
  local least, better = tonumber(top_min or nil), {}
  for queue, r in pairs(ctx.records) do
    local pages = r.has_pages and r[S2]
    if pages and (not least or pages > least) then better[#better + 1], better[#better + 2] = pages, queue end
  end
  if #better == 0 then return end
  run_many(better, 'ZADD', ctx.prefix .. 'top')
  local over = call('ZCARD', ctx.prefix .. 'top') - TOP_MAX
  if over < 0 then return end
  if over > 0 then call('ZREMRANGEBYRANK', ctx.prefix .. 'top', 0, over - 1) end
  call('HSET', ctx.meta_key, 'top_min', call('ZRANGE', ctx.prefix .. 'top', 0, 0, 'WITHSCORES')[2])
end

-- Counts of the URLs that descend from a seed: store e, number of the seed -> msgpack {added, done, dead}. Collected while a
-- script runs, and written once, at its end. Deferred URLs count as neither done nor dead.
local ADDED, DONE, DEAD = 1, 2, 3

local function count_seed(number, what, n)
  if not number or number == 0 then return end
  local counts = ctx.seeds[number] or {0, 0, 0}
  counts[what], ctx.seeds[number] = counts[what] + n, counts
end

local function write_seeds()
  for number, more in pairs(ctx.seeds) do
    local name = string.format('%d', number)
    local packed = compact_get('e', name)
    local counts = packed and cmsgpack.unpack(packed) or {0, 0, 0}
    for i = 1, 3 do counts[i] = counts[i] + more[i] end
    compact_put('e', name, cmsgpack.pack(counts))
  end
end

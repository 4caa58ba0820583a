-- top: zset of the queues with most pages (2xx), for reports; at most TOP_MAX of them. meta's top_min is its lowest value
-- when it is full, so that most commits need not read it.
local TOP_MAX = 128

local function top_min()
  if not ctx.top_min then ctx.top_min = tonumber(call('HGET', ctx.meta_key, 'top_min') or nil) or -1 end
  return ctx.top_min
end

local function rank_queues()
  local better = {}
  for queue, r in pairs(ctx.records) do
    local pages = r.has_pages and r[S2]
    if pages and pages > top_min() then better[#better + 1], better[#better + 2] = pages, queue end
  end
  if #better == 0 then return end
  run_many(better, 'ZADD', ctx.prefix .. 'top')
  local over = call('ZCARD', ctx.prefix .. 'top') - TOP_MAX
  if over < 0 then return end
  if over > 0 then call('ZREMRANGEBYRANK', ctx.prefix .. 'top', 0, over - 1) end
  call('HSET', ctx.meta_key, 'top_min', call('ZRANGE', ctx.prefix .. 'top', 0, 0, 'WITHSCORES')[2])
end

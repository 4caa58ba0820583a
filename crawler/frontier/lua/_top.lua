-- top: zset of the queues with most pages (2xx), for people who look; at most TOP_MAX of them. Meta's top_min is the
-- least of a full one, so that most commits need not look at it.
local TOP_MAX = 128

local function rank_queues(top_min)
  local least, better = tonumber(top_min or nil), {}
  for queue, r in pairs(records) do
    local pages = r.has_pages and r[S2]
    if pages and (not least or pages > least) then better[#better + 1], better[#better + 2] = pages, queue end
  end
  if #better == 0 then return end
  run_many(better, 'ZADD', P .. 'top')
  local over = call('ZCARD', P .. 'top') - TOP_MAX
  if over < 0 then return end
  if over > 0 then call('ZREMRANGEBYRANK', P .. 'top', 0, over - 1) end
  call('HSET', M, 'top_min', call('ZRANGE', P .. 'top', 0, 0, 'WITHSCORES')[2])
end

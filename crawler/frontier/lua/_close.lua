-- How scripts end that changed something of URLs or queues: all that was collected meanwhile is written. hints, session: tell
-- the partition's owner what woke (see hint). Returns how many queues woke.
local function close_call(hints, session)
  rank_queues()
  local woken = close_queues()
  if hints then hint(woken, hints, session) end
  local totals = write_totals()
  for run in pairs(ctx.seen_sets) do
    local size = totals['seen' .. run]
    if size then seen_grow(run, size) end
  end
  write_seeds()
  return woken
end

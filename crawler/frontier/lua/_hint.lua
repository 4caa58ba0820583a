-- Sleeping queues woke: the partition's owner is told, unless it did this itself.
local function hint(woken, channel_prefix, session)
  if woken == 0 then return end
  local owner = meta().session
  if owner ~= '' and owner ~= session then call('PUBLISH', channel_prefix .. owner, M) end
end

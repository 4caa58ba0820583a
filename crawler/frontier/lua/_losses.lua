-- Losses: what is missing in the results. The partition's totals count them: dead:REASON (dead letters that there are),
-- refused:REASON, deferred:REASON (see _deferred.lua), and of committed pages lost:REASON and items_invalid.
-- losses: hash of such a total -> an example: a URL, or its queue where a script does not know it. It is removed when it is
-- not one any more.
local Losses = {
  OF_PAGES = {items_invalid = true, ['refused:redirects'] = true}, -- besides lost:REASON
  LETTER_URL = 1, LETTER_REASON = 5, -- of a dead letter: see DeadLetter in codec.py
}

function Losses.keep(total, example) call('HSETNX', ctx.prefix .. 'losses', total, example) end

function Losses.drop(total, example)
  if call('HGET', ctx.prefix .. 'losses', total) == example then call('HDEL', ctx.prefix .. 'losses', total) end
end

-- A counter of a committed page; its entry is JSON.
function Losses.of_page(total, entry)
  if Losses.OF_PAGES[total] or string.sub(total, 1, 5) == 'lost:' then Losses.keep(total, cjson.decode(entry).url) end
end

function Losses.count_dead(letter)
  local known = cjson.decode(letter)
  local total = 'dead:' .. known[Losses.LETTER_REASON]
  count(ctx.total, total, 1)
  Losses.keep(total, known[Losses.LETTER_URL])
end

-- A dead letter, as it was stored, is deleted. Letters of earlier releases were not counted by reason.
function Losses.uncount_dead(stored)
  local known = cjson.decode(string.sub(stored, 1, string.find(stored, '\n', 1, true) - 1))
  local total = 'dead:' .. known[Losses.LETTER_REASON]
  local counted = tonumber(call('HGET', ctx.meta_key, total) or nil) or 0
  if counted + (ctx.total[total] or 0) > 0 then count(ctx.total, total, -1) end
  Losses.drop(total, known[Losses.LETTER_URL])
end

-- The total of URLs that are deferred for a reason now.
function Losses.deferred_for(reason) return 'deferred:' .. (is_deep(reason) and DEPTH or reason) end

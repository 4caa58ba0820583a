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

-- What a dead letter says of a URL that descends from this seed or run.
function Losses.of_letter(letter, seed)
  local known = cjson.decode(letter)
  return {seed = seed, reason = known[Losses.LETTER_REASON], example = known[Losses.LETTER_URL]}
end

-- Delete a dead letter, once it is read; what it says of its URL, nil when there is none.
function Losses.take_letter(fingerprint, seed)
  local stored = call('HGET', ctx.prefix .. 'dead', fingerprint)
  if not stored then return nil end
  local dead = Losses.of_letter(string.sub(stored, 1, string.find(stored, '\n', 1, true) - 1), seed)
  call('HDEL', ctx.prefix .. 'dead', fingerprint)
  return dead
end

-- The reason by which deferred URLs are counted.
function Losses.deferred_for(reason) return is_deep(reason) and DEPTH or reason end

// Who the page ranks for: a fresh guest, someone seen before in this browser, or any id that is typed.

import { getUser } from './api.js';

const RECENT = 'celeris-users';
const RECENT_MAX = 8;
/** Public rating sets number their users; a few of them make good company for a guest. */
const NUMBERED = ['1', '2', '3', '4', '5'];

/** An id such as `guest-4f2a` that nobody is likely to have. */
export function freshUser() {
  const [random] = crypto.getRandomValues(new Uint16Array(1));
  return `guest-${random.toString(16).padStart(4, '0')}`;
}

/** Users met before, latest first. Without storage (private windows may have none) there are no such users. */
export function recentUsers() {
  try {
    const kept = JSON.parse(localStorage.getItem(RECENT) ?? '[]');
    return Array.isArray(kept) ? kept.filter((user) => typeof user === 'string') : [];
  } catch {
    return [];
  }
}

export function rememberUser(user) {
  try {
    const kept = [user, ...recentUsers().filter((known) => known !== user)];
    localStorage.setItem(RECENT, JSON.stringify(kept.slice(0, RECENT_MAX)));
  } catch {
    // Remembering is a comfort; the id is in the address anyway.
  }
}

/** Ids to offer: those met before, and those of the numbered users whom the model has heard of. */
export async function suggestedUsers(model) {
  const heard = await Promise.all(
    NUMBERED.map((user) =>
      getUser(model, user, 1).then(
        (reply) => reply.observations > 0,
        () => false,
      ),
    ),
  );
  return [...new Set([...recentUsers(), ...NUMBERED.filter((_, index) => heard[index])])];
}

// The users of the page: a new guest, users known to this browser, or any typed id.

import { getUser } from './api.js';

const RECENT = 'celeris-users';
const RECENT_MAX = 8;
/** Public rating data sets number their users; the first few are suggested. */
const NUMBERED = ['1', '2', '3', '4', '5'];

/** A random id such as `guest-4f2a`, which is unlikely to exist. */
export function freshUser() {
  const [random] = crypto.getRandomValues(new Uint16Array(1));
  return `guest-${random.toString(16).padStart(4, '0')}`;
}

/** Users seen in this browser, latest first; empty without local storage, for example in private windows. */
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
    // Remembering users is optional; the id is in the address anyway.
  }
}

/** Suggested ids: users seen in this browser, and the numbered users with observations. */
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

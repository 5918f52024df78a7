/* ---- Claims: what must be true after the last step. */

static unsigned long claims, claims_wrong;

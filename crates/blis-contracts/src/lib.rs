//! The shared language of BLIS: units, plans, steps, the engine and environment traits, documents and their strict loading.

//! Published facts: chips, model graphs and the deriver that writes them.

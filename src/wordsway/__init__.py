"""How far can one word move a model?"""
